"""An app of a Django project, for tests: with the tasks of Django 6.0, or with their backport before."""

from importlib.metadata import version

PACKAGE = "django.tasks" if int(version("django").partition(".")[0]) >= 6 else "django_tasks"
