"""Runs in a loop of asyncio."""
import asyncio
import os
import threading
import unittest

import weft

from support import sine, small_plan


class Turns:
    """Counts the turns of another task."""

    def __enter__(self):
        self.count = 0
        self.task = asyncio.create_task(self.run())
        return self

    async def run(self):
        while True:
            self.count += 1
            await asyncio.sleep(0)

    def __exit__(self, *_):
        self.task.cancel()


class Loop(unittest.TestCase):
    def test_events(self):
        async def main(threads):
            with small_plan().run(threads=threads) as run:
                run.submit(*sine(), tag=1)
                run.submit(*sine(), tag=2)
                return [(event.tag, event.kind.name) async for event in run]

        for threads in (0, 1):
            found = asyncio.run(main(threads))
            self.assertEqual(found, [(tag, kind) for tag in (1, 2) for kind in ["MICRO_BATCH"] * 4 + ["DONE"]])

    def test_other_tasks_run_during_a_step(self):
        async def main():
            with Turns() as turns, small_plan().run() as run:
                event = await run.step_async(*sine())
                self.assertEqual((event.kind, event.loss), (weft.EventKind.DONE, small_plan().run().train(*sine())))
            return turns.count

        self.assertGreater(asyncio.run(main()), 10)   # one job of 16 at a time

    def test_a_cancelled_step_is_finished_by_the_next(self):
        async def main():
            with small_plan().run(threads=1) as run:
                task = asyncio.create_task(run.step_async(*sine()))
                await asyncio.sleep(0)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    pass
                return await run.step_async(*sine())

        event = asyncio.run(main())
        with small_plan().run() as run:
            run.train(*sine())
            self.assertEqual(event.loss, run.train(*sine()))

    def test_the_end_of_a_cancelled_step_does_not_block_the_loop(self):
        async def main():
            with Turns() as turns, small_plan().run() as run:
                await run.step_async(*sine())
                one = turns.count
                cancelled = asyncio.create_task(run.step_async(*sine()))
                await asyncio.sleep(0)
                cancelled.cancel()
                await asyncio.gather(cancelled, return_exceptions=True)
                await run.step_async(*sine())
                return one, turns.count - one

        one, both = asyncio.run(main())
        self.assertGreater(both, 1.5 * one)   # a turn for each job of the cancelled step and of the next

    def test_tasks_take_turns(self):
        async def main(threads):
            order = []
            with small_plan().run(threads=threads) as run:
                async def steps(name):
                    for _ in range(20):
                        await run.step_async(*sine())
                        order.append(name)

                await asyncio.gather(*map(steps, "abc"))
            return "".join(order)

        self.assertEqual(asyncio.run(main(0)), "abc" * 20)
        self.assertEqual(sorted(asyncio.run(main(1))), sorted("abc" * 20))   # a step may end before another task begins

    def test_other_calls_wait_for_the_step_of_a_task(self):
        async def main(threads):
            with small_plan().run(threads=threads) as run:
                for call in (run.digest, lambda: run.train(*sine())):
                    task = asyncio.create_task(run.step_async(*sine()))
                    await asyncio.sleep(0)
                    call()
                    await task
                return run.digest()

        with small_plan().run() as run:
            for _ in range(3):
                run.train(*sine())
            for threads in (0, 1):
                self.assertEqual(asyncio.run(main(threads)), run.digest())

    def test_tasks_of_two_loops_and_a_thread_share_a_run(self):
        with small_plan().run(threads=1) as run:
            made = []

            async def steps():
                for _ in range(20):
                    made.append(await run.step_async(*sine()))

            async def main():
                await asyncio.gather(steps(), steps())

            others = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(2)]
            for other in others:
                other.start()
            made += [run.train(*sine()) for _ in range(20)]
            for other in others:
                other.join()
        self.assertEqual(len(made), 100)

    def test_tasks_share_the_events(self):
        async def main():
            with small_plan().run(threads=1) as run:
                for tag in range(8):
                    run.submit(*sine(), tag=tag)

                async def taken():
                    return [event async for event in run]

                return sum(await asyncio.wait_for(asyncio.gather(taken(), taken()), 120), [])

        events = asyncio.run(main())
        self.assertEqual(sorted(event.tag for event in events), [tag for tag in range(8) for _ in range(5)])

    def test_other_tasks_do_not_get_the_events_of_a_step(self):
        async def main():
            with small_plan().run(threads=1) as run:
                step = asyncio.create_task(run.step_async(*sine()))
                found = []
                while not step.done():
                    found.append(run.poll(0))
                    await asyncio.sleep(0)
                return found, await step

        found, event = asyncio.run(main())
        self.assertEqual(set(found), {None})
        self.assertEqual(event.kind, weft.EventKind.DONE)

    def test_closing_a_run_ends_the_wait_of_a_task(self):
        async def main():
            with weft.Mesh.listen() as mesh:
                run = weft.Run(small_plan(), mesh, wait=False)   # no process joins

                async def events():
                    async for _ in run:
                        pass

                task = asyncio.create_task(events())
                await asyncio.sleep(0)
                run.close()
                await asyncio.wait_for(task, 120)

        with self.assertRaisesRegex(ValueError, "the Run is closed"):
            asyncio.run(main())

    def test_closing_a_run_in_another_thread_does_not_affect_a_file_that_gets_its_descriptor(self):
        async def main():
            with weft.Mesh.listen() as mesh:
                run = weft.Run(small_plan(), mesh, wait=False)   # no process joins

                async def events():
                    async for _ in run:
                        pass

                task = asyncio.create_task(events())
                await asyncio.sleep(0)
                descriptor, (source, sink), arrived = run.fileno(), os.pipe(), asyncio.Event()
                closer = threading.Thread(target=run.close)
                closer.start()
                closer.join()
                os.dup2(source, descriptor)
                asyncio.get_running_loop().add_reader(descriptor, arrived.set)
                with self.assertRaisesRegex(ValueError, "the Run is closed"):
                    await task
                os.write(sink, b"x")
                await asyncio.wait_for(arrived.wait(), 120)
                asyncio.get_running_loop().remove_reader(descriptor)
                for number in (source, sink, descriptor):
                    os.close(number)

        asyncio.run(main())

    def test_a_start_by_events(self):
        async def main():
            mesh = weft.Mesh.listen()
            run = weft.Run(small_plan(), mesh, wait=False)
            with self.assertRaises(weft.StateError):
                run.digest()
            with weft.Mesh.join(mesh.join_endpoint) as other:
                served = asyncio.create_task(other.serve_async())
                found = [(event.kind.name, event.rank, event.ranks) async for event in run]
                done = await run.step_async(*sine())
                run.close()
                await served
            mesh.close()
            return found, done.loss

        found, loss = asyncio.run(main())
        self.assertEqual(found, [("JOINED", 1, 2), ("STARTED", 0, 2)])
        with small_plan().run() as run:
            self.assertEqual(run.train(*sine()), loss)

    def test_a_start_that_fails(self):
        async def main():
            with weft.Mesh.listen(join_timeout_seconds=0.1) as mesh, weft.Run(small_plan(), mesh, wait=False) as run:
                async for _ in run:
                    pass

        with self.assertRaisesRegex(weft.TimedOutError, "rank 1"):
            asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
