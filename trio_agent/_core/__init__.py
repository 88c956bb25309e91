"""The pure core: what has happened, and what is next.  Knows no Trio, no network, no clock."""
