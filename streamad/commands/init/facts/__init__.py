"""The table of facts that every rule looks at: fields as columns, rows in the order of time, and the words of names."""
