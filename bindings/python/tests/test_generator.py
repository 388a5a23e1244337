"""Functions of the program that choose tokens: what they see and change, exceptions, KeyboardInterrupt, and when they are dropped."""
import gc
import signal
import unittest
import weakref

import numpy as np

import weft

from support import ProcessTest


def decoder_run(threads=0):
    model = weft.Model.decoder("gpt-nano:blocks=2,width=32,heads=2,context=20", sequences=2)
    return model.plan(micro_batches=1, micro_batch_size=8, short_size=2, step_kinds=weft.StepKinds.FORWARD).run(threads=threads)


def only_even(choice):
    choice.logits[1::2] = -np.inf


class Fails:
    """Raises an exception in place of a token."""

    def __init__(self, failure, index=0):
        self.failure, self.index = failure, index

    def __call__(self, choice):
        if choice.index == self.index:
            raise self.failure("the reason")


class WithGenerator(unittest.TestCase):
    def setUp(self):
        self.decoder = decoder_run()
        self.addCleanup(self.decoder.close)
        self.generator = weft.Generator(self.decoder)

    def made(self, sequence):
        """The tokens until the generator has no sequence: those of this one."""
        return [token.token for token in self.generator.tokens(3) if token.sequence == sequence]


class Choices(WithGenerator):
    def test_tokens_are_excluded_from_one_sequence(self):
        other = self.made(self.generator.add([7], limit=8))
        even = self.generator.add([1, 2, 3], only_even, limit=8)
        second = self.generator.add([7], limit=8)
        tokens = list(self.generator.tokens(2))
        self.assertEqual([token.token % 2 for token in tokens if token.sequence == even], [0] * 8)
        self.assertEqual([token.token for token in tokens if token.sequence == second], other)
        self.assertNotEqual([token % 2 for token in other], [0] * 8)

    def test_a_choice_has_the_logits_from_which_the_token_is_chosen(self):
        seen = []

        def look(choice):
            self.assertEqual((choice.tokens.dtype, choice.tokens.flags.writeable), (np.int32, False))
            self.assertEqual((choice.logits.dtype, choice.logits.flags.writeable, choice.logits.flags.owndata), (np.float32, True, False))
            seen.append((choice.sequence, choice.index, choice.tokens.tolist(), int(choice.logits.argmax())))

        sequence = self.generator.add([1, 2, 3], choose=look, temperature=0, limit=4, first=10)
        tokens = self.made(sequence)
        self.assertEqual(len(tokens), 4)
        self.assertEqual(seen, [(sequence, 10 + i, [1, 2, 3, *tokens[:i]], tokens[i]) for i in range(4)])

    def test_logits_that_are_assigned_are_written(self):
        def assign(choice):
            choice.logits = np.where(np.arange(len(choice.logits)) == 5, 0, -np.inf)

        def add(choice):
            choice.logits += np.where(np.arange(len(choice.logits)) == 6, 0, -np.inf)

        for choose, token in ((assign, 5), (add, 6)):
            self.assertEqual(self.made(self.generator.add([1], choose, limit=3)), [token] * 3)

    def test_arrays_that_are_kept_are_empty_after_the_call(self):
        kept = []

        def keep(choice):
            kept.append((choice, choice.tokens, choice.logits))

        self.made(self.generator.add([1], keep, limit=2))
        for choice, *arrays in kept:
            for array in (*arrays, choice.tokens, choice.logits):
                self.assertEqual((array.size, array.base), (0, None))

    def test_a_function_cannot_use_runs_and_generators(self):
        tokenizer, refused = weft.Tokenizer.parse('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'), []

        def use(choice):
            self.assertEqual(tokenizer.token(0), "a")
            for call in (self.generator.poll, lambda: self.generator.add([1]), lambda: self.generator.remove(1), self.generator.close,
                         self.decoder.digest, self.decoder.close):
                with self.assertRaisesRegex(weft.StateError, "cannot be used in an op, a log function or `choose`"):
                    call()
                refused.append(call)

        self.assertEqual(len(self.made(self.generator.add([1], use, limit=2))), 2)
        self.assertEqual(len(refused), 2 * 6)
        self.decoder.digest()


class Failures(WithGenerator):
    def test_an_exception_ends_its_sequence(self):
        for failure in (KeyError, SystemExit):
            fails = self.generator.add([1, 2], Fails(failure, 2), limit=4)
            other = self.generator.add([7], only_even, limit=4)
            tokens = []
            with self.assertRaisesRegex(weft.CallbackError, f"sequence {fails}: choose returned 1: {failure.__name__}: .*the reason") as caught:
                tokens.extend(token.sequence for token in iter(lambda: self.generator.poll(60), None))
            self.assertEqual(caught.exception.sequence, fails)
            self.assertIsInstance(caught.exception.__cause__, failure)
            tokens += [token.sequence for token in self.generator.tokens(1)]
            self.assertIsNone(self.generator.poll(60))
            self.assertEqual(len(self.made(self.generator.add([3], only_even, limit=4))), 4)

    def test_logits_that_are_not_numbers_end_the_sequence(self):
        def nan(choice):
            choice.logits[3] = np.nan

        sequence = self.generator.add([1], nan)
        with self.assertRaisesRegex(weft.DataError, f"sequence {sequence}: choose left no token") as caught:
            self.generator.poll(60)
        self.assertEqual(caught.exception.sequence, sequence)

    def test_a_function_is_dropped_with_its_sequence(self):
        def ended():
            self.generator.poll(60)

        def failed():
            with self.assertRaises(weft.CallbackError):
                self.generator.poll(60)

        def removed():
            self.generator.remove(sequence)

        def closed():
            self.generator.close()

        def run_closed():
            self.decoder.close()

        def dropped():
            self.generator = None

        gc.disable()   # nothing waits for it
        self.addCleanup(gc.enable)
        for end in (ended, failed, removed, closed, run_closed, dropped):
            if self.decoder.closed:
                self.decoder = decoder_run()
                self.addCleanup(self.decoder.close)
            if not self.generator or self.generator.closed:
                self.generator = weft.Generator(self.decoder)
            choose = Fails(ValueError, 0 if end is failed else 1)
            reference = weakref.ref(choose)
            sequence = self.generator.add([1], choose, limit=1)
            del choose
            self.assertIsNotNone(reference())
            end()
            self.assertIsNone(reference(), end.__name__)

    def test_the_function_of_a_sequence_that_is_refused_is_dropped(self):
        choose = Fails(ValueError)
        reference = weakref.ref(choose)
        with self.assertRaises(weft.InvalidError):
            self.generator.add([], choose)
        del choose
        gc.collect()   # the traceback
        self.assertIsNone(reference())


class Interrupt(ProcessTest):
    def test_keyboard_interrupt_in_a_function(self):
        with decoder_run() as run, weft.Generator(run) as generator:
            sequence = generator.add([1], lambda choice: signal.raise_signal(signal.SIGINT))
            with self.assertRaises(KeyboardInterrupt) as caught:
                generator.poll(60)
            self.assertEqual(caught.exception.__cause__.sequence, sequence)
            self.assertIsNone(generator.poll(60))
            run.digest()

    def test_no_interrupt_is_lost(self):
        for threads in (0, 1):
            self.passes(f"""
import os, sys, threading, weft
from support import interrupt_when
from test_generator import decoder_run, only_even
def lost(interrupt):
    print(interrupt.exc_value, file=sys.stderr, flush=True)
    os._exit(1)
sys.unraisablehook, armed, count = lost, threading.Event(), 0
interrupt_when(armed, 200)
with decoder_run({threads}) as run, weft.Generator(run) as generator:
    while count < 200:
        try:
            armed.set()
            while True:
                generator.add([1], only_even)
                for token in generator.tokens(1):
                    assert token.token % 2 == 0
        except KeyboardInterrupt:
            count += 1
        for token in generator.tokens(2):   # the interrupt may have come between two calls
            assert token.token % 2 == 0
""")


if __name__ == "__main__":
    unittest.main()
