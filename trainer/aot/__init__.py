"""The learner's step, compiled for TPUs that aren't there: what it takes, before one is rented.

    Case ──► programs: shapes with shardings ──► compiling: libtpu, no TPU
                                                   ├─► memory: the compiler's allocation
                                                   └─► hlo ──► estimate: trips, exchange, kernels
    running: a process a case, a deadline    ◄──── check: one report
    page, table: the committed numbers, and what is worse than them

`benchmarks/aot.py` is the command; docs/tpu.md says what is proved and what is not. Importing this
package imports no JAX.
"""
