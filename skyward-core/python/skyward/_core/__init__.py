"""What every part of the package may use: frames and messages, names, secrets, the state of the process."""
