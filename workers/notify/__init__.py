"""Messages written for a receiver and sent to it. Knows HTTP and receivers' forms, and neither store nor hosts."""
