"""Tests of wire/codec."""
