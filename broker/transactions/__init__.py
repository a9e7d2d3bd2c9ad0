"""Transactions: their coordinator, its log, and the markers that end them."""
