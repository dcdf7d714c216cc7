"""What is asked, what is known, and how it is shown: domain, store and API."""
