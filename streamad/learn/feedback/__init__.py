"""What operators and other workers say."""
