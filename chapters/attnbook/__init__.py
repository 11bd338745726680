"""The helper package of *From Averages to Attention*.

Each room imports from rooms further down only::

    speculative   chat                        what guesses ahead; a talk
    server   pretrained   town                what answers; weights, texts
    gguf   questions                          other people's files; tests
    gguf_layout   byte_pairs   published      what is in them; where they are
    pages   latent   hybrid   pooling   window   families   generate
                                              what uses a model
    data_parallel   tensor_parallel   ring   pipeline   experts
                                              one step, on several ranks
    compiled                                  what makes it write faster,
    fast                                      by fewer calls, by a layout
    prompts                                   what a model goes on from
    gpt   encoder                             the models
    layers   kernel                           its blocks; tiles on a card
    rounded_cache   gptq                      what is kept in fewer bits
    feed_forward   norms   attention   merging   state   cache   their parts
    positions   training                      where a token stands; the loop
    answers   reward   lora                   what is taught, and by what
    typed                                     what ranks may compute together
    placed                                    what each rank has of a tensor
    collectives                               what ranks send each other
    masks   batches   vocabulary   text       who sees whom; texts as numbers
    allowed                                   which tokens may come
    formats   quantised                       rounding to few bits
    config   shapes   packed   grammar        what fits; weights of few bits
    wire                                      what goes between ranks, counted
    files   values                            what is written, and refused

`run` keeps a long training safe; `teach` is the machinery behind the pages.
Both import the library, never the other way, nor each other.
"""

__version__ = "0.3.0"
