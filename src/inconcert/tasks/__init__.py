"""Work handed from one process to another: tasks, their jobs, and the workers that run them."""
