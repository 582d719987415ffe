"""Places in object stores (S3, Google Cloud Storage, Azure, HTTP): opened from a URL, with errors of one line."""
