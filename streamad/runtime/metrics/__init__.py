"""What a worker tells about itself over HTTP: its metrics, whether it is alive, and whether it is ready."""
