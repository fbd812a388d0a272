"""Work handed from one process to another: tasks, their jobs, and those who run them."""
