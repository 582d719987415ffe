"""Between the server and the pages: who gets an answer, and how open pages learn of changes."""
