"""What libraries keep in a worker's process, and how tasks are kept apart in them."""
