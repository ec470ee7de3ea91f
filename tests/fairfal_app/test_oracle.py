import numpy as np
import pytest

from fairfal_app.oracle import OracleError, SimulatedOracle


@pytest.fixture
def oracle() -> SimulatedOracle:
    return SimulatedOracle(np.array([3, 1, 4, 1, 5, 9]), client="site-07")


def test_it_answers_what_was_asked_in_the_order_of_the_request(oracle):
    oracle.ask(1, np.array([4, 0]))
    oracle.ask(2, np.array([1]))
    ids, labels = oracle.collect(np.array([0, 1, 4]))
    assert (ids.tolist(), labels.tolist()) == ([0, 1, 4], [3, 1, 5])
    assert ids.dtype == labels.dtype == np.int64


def test_it_keeps_the_labels_of_images_that_no_query_chose(oracle):
    oracle.ask(1, np.array([4, 0]))
    with pytest.raises(OracleError, match="site-07: ids 2, 3 were never queried"):
        oracle.collect(np.array([0, 2, 3]))
    with pytest.raises(OracleError, match="site-07: ids 0, 1, 2, 3, 4 and 1 more were never"):
        SimulatedOracle(np.arange(6), "site-07").collect(np.arange(6))


@pytest.mark.parametrize("unknown", [6, -1])
def test_an_id_that_the_data_set_does_not_have_is_refused(oracle, unknown):
    with pytest.raises(OracleError, match=f"site-07: label round 1 asks for ids {unknown}; .* ids 0 to 5"):
        oracle.ask(1, np.array([2, unknown]))


def test_no_ids(oracle):
    oracle.ask(1, np.array([], dtype=np.int64))
    ids, labels = oracle.collect(np.array([], dtype=np.int64))
    assert len(ids) == len(labels) == 0
