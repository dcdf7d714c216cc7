"""What people see of a result: plain data in, something rich can print out."""
