"""An app of a Django project, for tests: with the tasks of Django 6.0, or with their backport before."""

from importlib.util import find_spec

PACKAGE = "django.tasks" if find_spec("django") and find_spec("django.tasks") else "django_tasks"
