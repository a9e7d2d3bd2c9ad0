"""Tests of ottla/tools."""
