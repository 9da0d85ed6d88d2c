"""Values on the wire: from objects of Python to MessagePack, and back."""
