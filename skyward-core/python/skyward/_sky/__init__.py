"""What payloads call as `sky.…`, except nested calls."""
