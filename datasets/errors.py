"""Errors that a user can cause; every message says what was found and what to do about it."""


class RareflError(Exception):
    """Anything that a user can cause or cure: base of the errors of all packages but the library fedraw."""


class DataError(RareflError):
    """Base of the errors of this package."""


class DatasetNotFoundError(DataError):
    """There is no data set of that name, or its files lie in none of the places that were searched."""


class DatasetFormatError(DataError):
    """A file of a data set is damaged or holds something else than its name says."""


class PartitionError(DataError):
    """The training data cannot be thinned out, dealt to the clients or labelled as the settings ask."""


class ImageCacheError(DataError):
    """Decoded images cannot be kept in the user's cache folder."""
