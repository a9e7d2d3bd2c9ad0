"""Tests of ottla/client."""
