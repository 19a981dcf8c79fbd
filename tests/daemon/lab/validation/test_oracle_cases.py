"""An answer that ends inside a block: the plain one where it ends, else one that is made to."""

from __future__ import annotations

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.receipts.receipt_types import TrialKind, TrialTimes
from pilotfish.daemon.lab.validation.oracle_cases import BIASES, END, prepared
from pilotfish.daemon.lab.validation.trial_asking import MeasuredAnswer
from pilotfish.hooks.types import SamplingParams
from tests.daemon.lab.receipts.receipts import a_trial

EOS = 1
REQUEST = GenerationRequest((5, 6), SamplingParams(temperature=0), n_predict=8)


def case_of(stop, ids, *answers):
    """The case for a plain answer with these ids, and the biases that were tried; `answers` come of them in turn."""
    reference = a_trial("p", TrialKind.PLAIN, stop=stop, output_ids=ids)
    tried, left = [], list(answers)

    def plainly(request):
        tried.append(request.sampling.logit_bias[0][1])
        stop, ids = left.pop(0) if left else ("limit", (2,) * 8)
        return MeasuredAnswer(ids, stop, TrialTimes(0.0, 0.0), ())

    return prepared(END, REQUEST, reference, 4, EOS, plainly), tried


def test_a_plain_answer_that_ends_is_not_asked_again():
    case, tried = case_of("eos", (7, 8, EOS))
    assert (case.request, case.expected, tried) == (REQUEST, (7, 8, EOS), [])
    assert case.table == {"tokens": [7, 8, EOS, 7, 7, 7, 7]}


def test_one_that_does_not_end_is_made_to():
    case, tried = case_of("limit", (7,) * 8, ("limit", (7,) * 8), ("eos", (7, 9, EOS)))
    assert (case.expected, tried) == ((7, 9, EOS), list(BIASES[:2]))
    assert case.request.sampling.logit_bias == ((EOS, BIASES[1]),)


def test_where_none_ends_in_time_the_case_says_so_after_as_many_answers_as_the_plan_told():
    case, tried = case_of("limit", (7,) * 8)
    assert (case.table, tried) == (None, list(BIASES))
    assert "no answer ended" in case.about
    assert case_of("limit", (7,) * 8, ("eos", (EOS,)))[1] == list(BIASES[:1])  # any more would end at once, too
