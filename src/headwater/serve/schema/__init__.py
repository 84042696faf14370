"""What requests and answers of the server look like."""
