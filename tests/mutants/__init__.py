"""Textbook recipes, each with its defect, that the checkers of histories must flag: they test the tests.

A *story* is told of a recipe and, word for word, of ours.  What happens goes into a history, and the checkers, which
know neither, must name the recipe's defect and find nothing in ours.  Stories happen in a simulated world, so a process
can be killed or held up after any command, a reply lost, and a clock be wrong, the same way each time.

    locks.py  semaphores.py  test_permit_mutants.py   permits; their stories are in permit_stories.py
    work.py                  test_work_mutants.py     queues, workers, delayed work
                             test_step_mutants.py     durable steps
    chats.py                 test_chat_mutants.py     group chat
    flagging.py                                       the frame

Which recipe has which defect stands in the recipe's docstring, and in `docs/contributing/recipes.md`.
"""
