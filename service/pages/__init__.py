"""The pages: HTML for people, drawn on the server from what the API shows. Nothing imports this room but the app's factory."""
