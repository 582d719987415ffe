"""The bridge: messages of a broker that forgets what it was told is safe, to a topic or a followed file."""
