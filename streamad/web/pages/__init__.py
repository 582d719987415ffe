"""The pages: what each shows, as HTML made on the server."""
