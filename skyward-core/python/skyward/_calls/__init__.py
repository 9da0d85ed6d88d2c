"""What a nested call consists of: its pickle, its arrays in the node's store, its answer, its errors."""
