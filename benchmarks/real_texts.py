"""The texts that `real_models.py` asks the two published models about."""

BOAT = "The boat left the river bank"

#: Sentences with the bank of a river, and as many with a bank of accounts.
#: They were written before anything was measured, and none was left out.
RIVER = (
    "The boat left the river bank.",
    "We sat on the bank and watched the water.",
    "He fished from the muddy bank all day.",
    "Trees grew along the bank of the stream.",
    "The flood washed away part of the bank.",
    "She walked along the grassy bank with her dog.",
    "Ducks were sleeping on the bank.",
    "The canoe was pulled up on the bank.",
    "They built a small hut on the left bank.",
    "A heron stood motionless near the bank.",
    "The path follows the bank for two miles.",
    "Children threw stones from the bank.",
    "The swimmer reached the opposite bank, exhausted.",
    "Reeds hide the bank from the ferry.",
    "At low tide the bank is covered with shells.",
    "The bank was too steep to climb out of the water.",
    "An otter slid down the bank into the river.",
    "They tied the raft to a post on the bank.",
    "The bridge joins the north bank to the island.",
    "Mist lay over the bank at dawn.",
)
MONEY = (
    "She opened an account at the bank.",
    "The bank raised its interest rates.",
    "He works for a large bank in the city.",
    "I deposited the money in the bank.",
    "The bank refused to give them a loan.",
    "They robbed a bank and fled by car.",
    "My bank charges a fee for every transfer.",
    "The central bank printed more money.",
    "You can change your dollars at the bank.",
    "The bank sent me a new credit card.",
    "Her savings are safe in the bank.",
    "The bank closes at four on Fridays.",
    "He owes the bank a fortune.",
    "Investors lost their trust in the bank.",
    "The mortgage was sold to another bank.",
    "A clerk at the bank counted the notes.",
    "The bank went bankrupt during the crisis.",
    "Ask the bank for a statement of your account.",
    "The merger created the largest bank in Europe.",
    "She pays her rent by a bank transfer.",
)
TEXT = (
    "The ferry crosses the river four times a day. In the morning it carries "
    "people who work in the town, and at noon it brings the children home "
    "from school. The old ferryman knows every one of them by name. He has "
    "steered the boat for thirty years, in fog and in high water, and he says "
    "that the river is never the same twice. In spring it is brown and fast "
    "and full of branches. In summer it is so low that the boat sometimes "
    "touches the stones, and then the children cheer. There was talk of a "
    "bridge once. Engineers came with instruments and measured the banks, "
    "and a model of the bridge stood in the town hall for a whole winter. "
    "But the money was spent on the new school, and the ferry stayed. The "
    "ferryman was not surprised. A bridge, he says, takes you to the other "
    "side, but it does not wait for you. When the last passengers have gone, "
    "he ties the boat to its post, wipes the bench with a cloth, and looks "
    "at the water for a while. Then he walks up the path to his house, where "
    "a lamp is burning in the window. The next morning he is at the landing "
    "before anybody else. He checks the rope and the motor, pours a little "
    "oil where it is needed, and rings the bell, and the first of the "
    "children come running down the hill."
)
QUESTIONS = (
    "What is the capital of France?",
    "How many days are in a week?",
    "Name three fruits.",
    "Which animal says meow?",
    "What colour is the sky on a clear day?",
    "What does a boat do?",
)
CODE = """\
def mean(numbers):
    total = 0
    for number in numbers:
        total = total + number
    return total / len(numbers)
"""
#: Prompts whose answers copy from them, and one whose answer does not.
COPYING = {
    "a text repeated": "Repeat this text exactly:\n"
    "The ferry crosses the river four times a day. In the morning it carries "
    "people who work in the town, and at noon it brings the children home "
    "from school.",
    "code repeated": f"Repeat this code exactly:\n{CODE}",
    "a summary": f"Summarise this text in three sentences:\n{TEXT[:700]}",
    "a story of its own": "Tell me a short story about a ferryman.",
}
