"""The front of tasks: what a coordinator offers of them, and the parts that it makes when they are asked for.

Begin with `task_coordinator.py`.
"""
