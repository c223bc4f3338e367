"""How attempts are run: processes (commands and scripts) and functions (in long-lived worker processes)."""
