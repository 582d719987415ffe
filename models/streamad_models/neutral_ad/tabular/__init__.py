"""NeuTraL AD for rows of a table."""
