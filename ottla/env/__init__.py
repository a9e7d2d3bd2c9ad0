"""The world as interfaces (`Env`, `Disk`) at the very ground, and the real machine behind them."""
