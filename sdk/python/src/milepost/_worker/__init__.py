"""The parts of a worker.

```text
   Worker ── a thread with an event loop: Pump ── calls ──► server
                                           │ ▲
                                    tasks  ▼ │ outcomes
                                          Hands ── threads for functions, a loop for async ones
```
"""
