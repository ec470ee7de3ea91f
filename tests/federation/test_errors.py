from datasets import errors as data_errors
from federation import errors
from learning import errors as learning_errors


def test_every_error_is_one_that_the_command_line_catches() -> None:
    for module in (data_errors, learning_errors, errors):
        found = [
            each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Exception)
        ]
        assert len(found) > 3, module
        for each in found:
            assert issubclass(each, errors.USER_ERRORS), each
