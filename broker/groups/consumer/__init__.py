"""Groups of the new consumer protocol (KIP-848): the coordinator says who reads what, and members follow."""
