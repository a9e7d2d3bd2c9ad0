"""Tests of ottla/env."""
