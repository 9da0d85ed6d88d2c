"""The hooks of Skyward's plugins: each module is sent to the workers by itself and imports nothing of the others."""
