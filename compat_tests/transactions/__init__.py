"""Tests of transactions with stock clients."""
