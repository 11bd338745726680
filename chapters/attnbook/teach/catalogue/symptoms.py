"""The symptoms of mistakes: what somebody sees whose code is wrong.

They are the headings of the list on the page of mistakes, where a reader
looks for what she sees. Each mistake names its heading, or several, where it
is registered (`symptom=` of `Task.mistake`). The page has them in the order of
`HEADINGS`.
"""

LOSS_TOO_LOW = "The loss is too low at once"
OTHER_SCORE = "The loss, or another score, is not what others report"
TRAINS_BADLY = "It trains, but slowly, with jumps, or too little"
NAN = "NaN or infinity"
SIZES = "An error about sizes, or only for some sizes"
WRONG_NUMBERS = "Every shape is right, and the numbers are not"
WRONG_IN_THE_NEXT_CASE = "Right in the simple case, wrong in the next"
WRONG_SUMS = "Weights do not sum to one"
WRONG_SHARPNESS = "Weights are too even or too sharp"
SEES_WRONG_TOKENS = (
    "A token sees what it must not, or misses what it should see"
)
WRONG_IN_A_BATCH = "Fine alone, wrong in a batch"
LATER_TOKENS_WRONG = "The first token is right, later ones are not"
WRONG_IN_A_SERVER = "A server's text depends on who else is there, or it stops"
LOADED_WEIGHTS = "Loaded weights give other answers"
DIFFERS_EACH_TIME = "The same input gives something else each time"
BAD_TEXT = "The text repeats itself, turns to nonsense or does not end"
NOT_ALLOWED = "With a grammar, answers break off, never end or are not allowed"
WRONG_GRADIENTS = "Values are right, gradients are not"
TEST_ALWAYS_PASSES = "The test passes whatever the code does"
WRONG_COUNT = "A count of parameters, memory or work is off"
GUESSES_CHANGE_TEXT = "With guesses the text is another than without"
GUESSES_NO_FASTER = (
    "With guesses it is right, and no faster, or not as fast as said"
)

#: All headings, in the order of the page.
HEADINGS = (
    LOSS_TOO_LOW,
    OTHER_SCORE,
    TRAINS_BADLY,
    NAN,
    SIZES,
    WRONG_NUMBERS,
    WRONG_IN_THE_NEXT_CASE,
    WRONG_SUMS,
    WRONG_SHARPNESS,
    SEES_WRONG_TOKENS,
    WRONG_IN_A_BATCH,
    LATER_TOKENS_WRONG,
    WRONG_IN_A_SERVER,
    LOADED_WEIGHTS,
    DIFFERS_EACH_TIME,
    BAD_TEXT,
    NOT_ALLOWED,
    WRONG_GRADIENTS,
    TEST_ALWAYS_PASSES,
    WRONG_COUNT,
    GUESSES_CHANGE_TEXT,
    GUESSES_NO_FASTER,
)
