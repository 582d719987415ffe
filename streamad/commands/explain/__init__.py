"""``streamad explain``: why an alert was raised, asked afterwards."""
