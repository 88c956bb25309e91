"""What any implementation of a port must do, as cases for a parametrized test: one file a port."""
