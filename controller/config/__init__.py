"""Configuration keys: names, values and the rules that check them."""
