"""Tests of stock tools and of monitoring."""
