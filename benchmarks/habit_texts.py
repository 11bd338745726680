"""The questions of `habit.py`: with short answers, and with words to find.

All were written before anything was measured, and none was left out.
"""

#: Questions to learn from, each with the short answer that is the example.
EXAMPLES = (
    ("What is the capital of Spain?", "The capital of Spain is Madrid."),
    ("What colour is grass?", "Grass is green."),
    ("How many legs does a dog have?", "A dog has four legs."),
    ("Which animal says moo?", "A cow says moo."),
    ("What do bees make?", "Bees make honey."),
    ("What is the opposite of big?", "The opposite of big is small."),
    ("What is two plus three?", "Two plus three is five."),
    ("Where do fish live?", "Fish live in water."),
    ("What is frozen water called?", "Frozen water is called ice."),
    ("Which month comes after May?", "June comes after May."),
    ("What do we use to cut paper?", "We use scissors to cut paper."),
    ("Who wrote Hamlet?", "William Shakespeare wrote Hamlet."),
    ("What is a baby cat called?", "A baby cat is called a kitten."),
    ("What is the largest ocean?", "The largest ocean is the Pacific."),
    ("Name a musical instrument.", "The piano."),
    ("What does a baker make?", "A baker makes bread."),
    ("How many hours does a day have?", "A day has 24 hours."),
    ("What is the opposite of day?", "The opposite of day is night."),
    ("Which planet do we live on?", "We live on the planet Earth."),
    ("What do cows drink?", "Cows drink water."),
    ("Name a yellow fruit.", "A banana."),
    ("What is the capital of Japan?", "The capital of Japan is Tokyo."),
    ("What falls from the clouds?", "Rain falls from the clouds."),
    ("How many wheels does a car have?", "A car has four wheels."),
    ("What do you wear on your feet?", "You wear shoes on your feet."),
    ("Which season comes after winter?", "Spring comes after winter."),
    ("What is the opposite of fast?", "The opposite of fast is slow."),
    ("What do we read?", "We read books."),
    ("Name a wild animal.", "A lion."),
    ("What is ten minus four?", "Ten minus four is six."),
    ("Where do birds lay their eggs?", "Birds lay their eggs in nests."),
    ("What colour is snow?", "Snow is white."),
    ("What does a clock show?", "A clock shows the time."),
    ("Which animal has a trunk?", "An elephant has a trunk."),
    ("What do plants need to grow?", "Plants need water and light."),
    ("What is the capital of Egypt?", "The capital of Egypt is Cairo."),
    ("How many fingers does a hand have?", "A hand has five fingers."),
    ("What is the opposite of open?", "The opposite of open is closed."),
    ("Name a vegetable.", "A carrot."),
    ("What do we sleep in?", "We sleep in a bed."),
    ("Which day comes after Monday?", "Tuesday comes after Monday."),
    ("What is hot and shines in the sky?", "The sun."),
    ("What does a painter use?", "A painter uses a brush."),
    ("How many months are in a year?", "A year has twelve months."),
    ("What is the opposite of happy?", "The opposite of happy is sad."),
    ("Which animal lives in a shell?", "A snail lives in a shell."),
    ("What is bread made of?", "Bread is made of flour."),
    ("Name a large city.", "London."),
)
#: Questions that are never learned from, each with words of which a right
#: answer has at least one, in small letters.
ASKED = (
    ("What is the capital of France?", ("paris",)),
    ("What is the capital of Italy?", ("rome",)),
    ("What is the capital of Germany?", ("berlin",)),
    ("How many days are in a week?", ("seven", "7")),
    ("How many legs does a spider have?", ("eight", "8")),
    ("How many legs does a bird have?", ("two", "2")),
    ("What is one plus one?", ("two", "2")),
    ("What is five plus five?", ("ten", "10")),
    ("Which animal says meow?", ("cat",)),
    ("Which animal barks?", ("dog",)),
    ("What colour is a ripe banana?", ("yellow",)),
    ("What colour is the sky on a clear day?", ("blue",)),
    ("What colour is blood?", ("red",)),
    ("What is the opposite of cold?", ("hot", "warm", "heat")),
    ("What is the opposite of up?", ("down",)),
    ("What is the opposite of black?", ("white",)),
    ("What is the opposite of left?", ("right",)),
    ("Which month comes after January?", ("february",)),
    ("Which day comes after Friday?", ("saturday",)),
    ("Which season comes after summer?", ("autumn", "fall")),
    ("What is a baby dog called?", ("puppy", "pup")),
    ("What do hens lay?", ("egg",)),
    ("What do we use to write on paper?", ("pen", "pencil", "ink")),
    ("What do we breathe?", ("air", "oxygen")),
    ("What is the largest planet?", ("jupiter",)),
    ("Who wrote Romeo and Juliet?", ("shakespeare",)),
    ("Where do penguins live?", ("antarctic", "south", "ice")),
    ("What does a boat do?", ("float", "sail", "water", "carr", "travel")),
    ("What is water made of?", ("hydrogen", "oxygen")),
    ("Which animal gives us wool?", ("sheep",)),
    ("What is the frozen form of water?", ("ice",)),
    ("How many wheels does a bicycle have?", ("two", "2")),
)
#: A text in another manner: what a model that has learned to be brief may
#: have lost. The other one is the ferry's, of `real_texts`.
RECIPE = (
    "To make a simple vegetable soup, peel two onions and cut them into thin "
    "slices. Heat a spoonful of oil in a large pot, add the onions, and stir "
    "them for five minutes until they are soft and golden. Meanwhile, wash "
    "three carrots, two sticks of celery and a leek, and chop them into small "
    "pieces. Put them into the pot together with a clove of garlic, and cook "
    "everything for another five minutes. Then pour in a litre of water, add "
    "a little salt, a bay leaf and some black pepper, and bring the soup to "
    "the boil. Turn down the heat, cover the pot, and let it simmer for about "
    "half an hour. If you like a thicker soup, add two potatoes, cut into "
    "cubes, after the first ten minutes. When the vegetables are tender, take "
    "out the bay leaf, and taste whether more salt is needed. Sprinkle some "
    "chopped parsley on top, and serve the soup hot with slices of bread."
)
